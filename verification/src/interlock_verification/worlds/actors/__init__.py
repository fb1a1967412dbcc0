"""The actors of a world: production's servers, workers and agents, and the clients that use them."""
