"""The benchmark: own figures B1 to B10, floors and peers, each ratio measured side by side in one run."""
