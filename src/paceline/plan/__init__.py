"""What training will take on other machines: predicted from one run, before anything is paid."""
