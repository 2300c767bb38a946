"""Workers: own sessions, execute approved mutations once, settle what happened."""
