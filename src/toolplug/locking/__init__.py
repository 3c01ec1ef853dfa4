"""`toolplug.lock`: what was installed when somebody looked at it, to the byte, and what each tool says to a model.

`files`, `installed` and `compiled` read what is there now, `lock_file` what was there then; `reader` says the
difference in words, and refuses it before anything is imported (docs/how-to/lock-packages.md).
"""
