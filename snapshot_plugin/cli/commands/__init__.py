"""One module per command, named as the command is. Each defines ``command`` and is imported when it is called."""
