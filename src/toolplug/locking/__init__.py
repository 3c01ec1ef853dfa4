"""`toolplug.lock`: what was installed when somebody looked at it, to the byte, and what each tool says to a model.

`files`, `search_path` and `compiled` read what is there now, `lock_file` what was there then, `comparison` says the
difference in words, and `reader` refuses it before anything is imported (docs/how-to/lock-packages.md).
"""
