#!/bin/sh
exec PYTHON -m nlpkernel "$@"
