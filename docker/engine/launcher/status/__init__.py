"""What the launcher knows of its engine, and the pages that tell it."""
