"""Tests of the HTTP server, against real ones on a loopback port."""
