"""Files that come into the index: uploads that wait, and folders of the operator."""
