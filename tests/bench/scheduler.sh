#!/bin/sh
# `retry scheduler` as the one executable that the harness of the Go scheduler asks for:
#   SCHEDULER_BIN=$PWD/tests/bench/scheduler.sh KAFKA_LIBS=<folder with broker jars> python3 bench.py all
# PYTHON names the interpreter; each run's tables lie in the folder that the harness works in, under its group's name.
exec "${PYTHON:-python3}" -m retry scheduler
