"""`kraft doctor`: reads files, configurations, bundles and live clusters, and reports what is wrong with a quorum."""
