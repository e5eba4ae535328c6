# Packages that users install; scripts/check-packages deb, by hand, takes longer. Beside 60-kill.sh. (sourced by
# scripts/test)
start_step 300 "packages: tar and wheel, made twice, installed, run and uninstalled" scripts/leaves-nothing \
    scripts/check-packages tar wheel
