"""`cramerl watch`: an episode with the laws an agent predicts in it, as a page, a video or a picture."""
