"""Makes the modules beside this file importable for the tests of every package."""
