"""The same journeys, whether workers and clients speak to the store or to a server."""
