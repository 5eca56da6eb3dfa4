"""Reports what becomes of commits to Git hosts, chats and webhooks."""
