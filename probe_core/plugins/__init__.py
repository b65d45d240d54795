"""Plugins: discovery, contributions, and the interfaces that they implement."""
