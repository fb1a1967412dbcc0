"""What a controller and its agents say to each other, and the Python made from it by `make proto`."""
