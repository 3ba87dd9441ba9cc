"""Small changes of the core's sources, each of which some test has to notice: `make mutants`.

`changes` finds the changes, `runner` runs tests on a copy that has one, and `__main__` draws a sample and reports.
"""
