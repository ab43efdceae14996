"""What people look at: figures, and later the report."""
