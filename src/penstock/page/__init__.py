"""The web page of the admin port: static files, and what a browser may do with them.

``static/`` has plain ES modules and a style sheet, which are served as they are; ``vendor/`` has
uPlot and Preact with htm, byte for byte as their authors ship them. There is no build step. All
data comes from the admin API, so what the page can do, a script can do, too.

A browser gets the page at ``/``; other clients get the list of endpoints there. May import
`wires.http` only.
"""

from penstock.page.files import page_file

__all__ = ["page_file"]
