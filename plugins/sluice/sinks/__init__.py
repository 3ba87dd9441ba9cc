"""Where rows go: a folder for each kind of sink."""
