"""Which model, and getting it onto the disk: download, check, manifest."""
