"""Reports the states of commits to Git hosts, chats and webhooks."""
