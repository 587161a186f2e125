"""Other ways to run a model, each if its package is installed. `requirements.txt` lists the packages."""
