// Where commands keep what they found out for each other, and models.
#pragma once

#include <string>

namespace hearth::cli {

// $XDG_CACHE_HOME/hearth, or ~/.cache/hearth; empty where the environment names neither. Need not
// exist.
std::string CacheFolder();

// Where 'hearth get' puts models: $HEARTH_MODELS, $XDG_DATA_HOME/hearth/models, or
// ~/.local/share/hearth/models; empty where the environment names none. Need not exist.
std::string ModelsFolder();

// The profile of this machine that `hearth doctor` saves there; empty like the folder.
std::string SavedHardwarePath();

// What is kept between runs, such as the history of chats: $XDG_STATE_HOME/hearth, or
// ~/.local/state/hearth. Empty, and made by nobody, as CacheFolder.
std::string StateFolder();

}  // namespace hearth::cli
