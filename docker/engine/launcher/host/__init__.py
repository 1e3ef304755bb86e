"""The machine: its GPUs, its drivers against the tested builds, its caches and cores."""
