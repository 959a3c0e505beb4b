"""One module or folder for each verb of the command line."""
