"""Protocols other than this API's, for clients that already speak them."""
