"""The judging side: claims bundles, replays each call, judges it, records the verdict and empties the spool.

`watch` follows a spool while it is written, `reprocess` judges once what is left in one.
"""
