"""Pages: single HTML files that need nothing else.

frame      the page around every content: style, script, escaping, tables
charts     pictures as inline SVG
run        `report.html` of a run, from its sections: decisions, training, data, memory, host
sweep      `report.html` of a sweep: its jobs side by side
"""
