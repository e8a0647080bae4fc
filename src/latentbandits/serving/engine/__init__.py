"""The decision engine: sessions, beliefs and the event log, without HTTP."""
