"""One episode to a page, a video, a picture or a live display."""
