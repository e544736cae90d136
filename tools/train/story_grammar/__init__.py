"""A grammar of fireside stories. See compose.compose and chat.chat_turns."""
