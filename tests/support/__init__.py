"""Support of the tests: references, cases, engines, and graphs."""
