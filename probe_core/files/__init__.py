"""Reading and writing files safely, whatever they hold."""
