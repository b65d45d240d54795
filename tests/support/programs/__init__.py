"""Programs that tests record, and the processes they run in."""
