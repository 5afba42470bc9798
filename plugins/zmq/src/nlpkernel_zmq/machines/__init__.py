"""The decisions of the protocol as pure state machines: no socket, no clock, no tensor."""
