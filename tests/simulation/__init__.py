"""The real coordinator and participants over a source, a sink and a control log in memory, which break by a seed.

A history is made of a seed alone: what is produced, what is asked for, who goes next, and what dies, freezes, is told
of a time-out or runs twice. `python -m tests.simulation --help` runs many, or tells one.
"""
