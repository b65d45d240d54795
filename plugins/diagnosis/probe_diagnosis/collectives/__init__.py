"""Communication between ranks: the APIs, their recorded calls, and the law that each must keep."""
