"""The releases of Airflow and Python on which Sluice is tested."""
