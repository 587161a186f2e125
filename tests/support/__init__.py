"""What tests are written with: references, cases, engines, and graphs."""
