"""A thousand workers that give signs of life, and how soon one of them hears that it has to hold."""
