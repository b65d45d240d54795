"""What two runs and their ranks differ in first, and why."""
