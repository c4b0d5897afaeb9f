# Import nothing here: a module of a level that the CPU lacks ends the process. See fastpool/_dispatch.py.
