"""Other protocols than this API, for clients that speak them already."""
