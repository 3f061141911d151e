"""The report as one HTML file that needs nothing else: no script at all, no request, plots as SVG in the page.

`format` says numbers as people read them, `plots` draws pictures with Altair, `render` chooses what is drawn, and
puts all of it into `page.html`, and into `index.html` where each team has a page.
"""
