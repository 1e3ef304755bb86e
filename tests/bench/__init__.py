"""Measurements: programs, not tests. Machines differ, so no number here passes or fails."""
