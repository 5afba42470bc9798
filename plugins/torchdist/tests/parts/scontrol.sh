#!/bin/sh
# Says what it was asked for.
echo "$@"
