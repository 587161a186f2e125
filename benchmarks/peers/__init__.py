"""Other ways to run a model, each as far as its package is installed. `requirements.txt` lists the packages."""
