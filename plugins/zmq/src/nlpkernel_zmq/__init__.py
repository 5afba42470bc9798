"""A parameter server on ZeroMQ: the communicator `zmq-ps`."""
