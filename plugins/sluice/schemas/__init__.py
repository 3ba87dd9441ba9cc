"""How records become rows, pinned from what registry, pipeline file and table say."""
